// Runs in a context of an edge runtime.
import { answer } from "./entry.js";

globalThis.answer = answer;
