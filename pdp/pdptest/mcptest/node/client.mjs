// What both of the clients do: list the tools, call some, and say what came of it.
//
// The job is the first argument, {"url", "headers", "calls": [{"name", "arguments"}], "asked", "takes"}. On standard output
// comes {"version", "server", "tools": [names], "answers": [{"result"} | {"code", "message", "data"}, "progress"]}. What the
// client is asked for a person goes to the URL "asked", which says what the person answers; "takes" is the capability
// elicitation. Without "asked" there is no person.
export async function run(connect) {
  const job = JSON.parse(process.argv[2]);
  const capabilities = job.asked === undefined ? {} : { elicitation: job.takes };
  const client = await connect(new URL(job.url), { requestInit: { headers: job.headers } }, { capabilities });
  if (job.asked !== undefined) {
    client.asked(async (request) => {
      const answer = await fetch(job.asked, { method: "POST", body: JSON.stringify(request.params) });
      return answer.json();
    });
  }
  const seen = { version: client.version(), server: client.server(), tools: [], answers: [] };
  let cursor;
  do {
    const page = await client.list(cursor);
    seen.tools.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  for (const call of job.calls) {
    const progress = [];
    const onprogress = (p) => progress.push(String(p.message));
    try {
      seen.answers.push({ result: await client.call(call, { onprogress }), progress });
    } catch (e) {
      // A code that is a word is the client's own, for what is no JSON-RPC error.
      const code = typeof e.code === "number" ? e.code : 0;
      seen.answers.push({ code, message: code === 0 ? `${e.code}: ${e.message}` : String(e.message), data: e.data, progress });
    }
  }
  await client.close();
  process.stdout.write(JSON.stringify(seen) + "\n");
}
