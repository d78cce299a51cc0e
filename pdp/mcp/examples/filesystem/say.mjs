// A participant in a terminal: it says one message to the gateway, or listens.
//
//   node say.mjs URL TOKEN-FILE METHOD PARAMS    shows what is answered
//   node say.mjs URL TOKEN-FILE listen [METHOD]  shows what comes, a line each: all of it, or one of a method
import { readFileSync } from "node:fs";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, tokenFile, method, params] = process.argv.slice(2);
const headers = { Authorization: "Bearer " + readFileSync(tokenFile, "utf8").trim() };
const client = new Client({ name: "say", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });

// What the protocol does not have, the library hands on as it came: a notification, and a result of any form.
const asItIs = { "~standard": { version: 1, vendor: "say", validate: (value) => ({ value }) } };
const show = (message) => console.log(JSON.stringify(message, (name, value) => (name === "_meta" ? undefined : value)));

await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
if (method === "listen") {
  let told;
  const over = new Promise((resolve) => (told = resolve));
  client.fallbackNotificationHandler = async (message) => {
    if (params !== undefined && message.method !== params) return;
    show(message);
    if (params !== undefined) told();
  };
  await client.listen({ "io.policy-service/authorization": true });
  await over;
} else {
  try {
    show(await client.request({ method, params: JSON.parse(params) }, asItIs));
  } catch (e) {
    console.log(`${e.code}: ${e.message}`);
    if (e.data !== undefined) show(e.data);
  }
}
process.exit();
