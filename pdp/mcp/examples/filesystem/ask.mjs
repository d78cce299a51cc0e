// A client in a terminal: it calls one tool, and shows its person what the gateway has them asked.
//
//   node ask.mjs URL TOKEN-FILE TOOL [NAME=VALUE]...
//
// To a form you answer yes or no. Before that, FIELD=VALUE changes a field, such as an argument that you review.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, tokenFile, name, ...pairs] = process.argv.slice(2);
const cut = (pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)];
const headers = { Authorization: "Bearer " + readFileSync(tokenFile, "utf8").trim() };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const client = new Client(
  { name: "ask", version: "1.0.0" },
  { versionNegotiation: { mode: "auto" }, capabilities: { elicitation: { form: {}, url: {} } } },
);

// Who is waited for is said once, and not to the person who was asked. What the library says of itself is left out.
let told = false;
const onprogress = ({ message }) => {
  if (told || message.startsWith("Fulfilling")) return;
  told = true;
  console.log(message);
};

client.setRequestHandler("elicitation/create", async ({ params }) => {
  told = true;
  console.log(`\n${params.message}\n`);
  if (params.mode === "url") {
    console.log(`open: ${params.url}`);
    return { action: "accept" };
  }
  const content = {};
  for (const [field, schema] of Object.entries(params.requestedSchema.properties)) {
    if (schema.default !== undefined) content[field] = schema.default;
    console.log(`  ${field}: ${schema.default ?? schema.title ?? schema.type}`);
  }
  console.log("\nyes, no, or FIELD=VALUE?");
  for (;;) {
    const { value, done } = await lines.next();
    if (done) return { action: "cancel" };
    if (value === "yes") return { action: "accept", content: { ...content, approve: true } };
    if (value === "no") return { action: "decline" };
    const [field, changed] = cut(value);
    content[field] = changed;
  }
});

try {
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const result = await client.callTool({ name, arguments: Object.fromEntries(pairs.map(cut)) }, { onprogress });
  for (const part of result.content) console.log(part.text);
} catch (e) {
  console.log(`${e.code}: ${e.message}`);
  if (e.data !== undefined) console.log(JSON.stringify(e.data, null, 2));
}
await client.close();
process.exit(); // nobody types any more
