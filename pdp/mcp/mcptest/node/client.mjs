// What both of the clients do: list the tools, call some, and say what came of it.
//
// The job is the first argument, {"url", "headers", "calls": [{"name", "arguments"}]}. On standard output comes
// {"version", "server", "tools": [names], "answers": [{"result"} | {"code", "message", "data"}]}.
export async function run(connect) {
  const job = JSON.parse(process.argv[2]);
  const client = await connect(new URL(job.url), { requestInit: { headers: job.headers } });
  const seen = { version: client.version(), server: client.server(), tools: [], answers: [] };
  let cursor;
  do {
    const page = await client.list(cursor);
    seen.tools.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  for (const call of job.calls) {
    try {
      seen.answers.push({ result: await client.call(call) });
    } catch (e) {
      // A code that is a word is the client's own, for what is no JSON-RPC error.
      const code = typeof e.code === "number" ? e.code : 0;
      seen.answers.push({ code, message: code === 0 ? `${e.code}: ${e.message}` : String(e.message), data: e.data });
    }
  }
  await client.close();
  process.stdout.write(JSON.stringify(seen) + "\n");
}
