// Runs the table of cases on Node: one JSON object a line comes in, one goes out.
import { createInterface } from "node:readline";
import { call } from "./calls.js";

for await (const line of createInterface({ input: process.stdin })) process.stdout.write(`${await call(line)}\n`);
