// A Cloudflare Worker: a call comes as the body of a request, and its outcome is the response.
import { answer } from "./entry.js";

export default { fetch: async (request) => new Response(await answer(await request.text())) };
