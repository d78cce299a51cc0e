"""Runs cases of the table of evaluation/clients: one JSON object a line in, one a line out. --async is AsyncClient."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from policy_service import AsyncClient, AuthorizationError, Breaker, Client  # noqa: E402

FINDS = {"subject": "search_subjects", "resource": "search_resources", "action": "search_actions"}


class Driver:
    """The client of the last line that had one, with its capability."""

    def __init__(self, use_async: bool) -> None:
        self.use_async = use_async
        self.client: Any = None
        self.holder: Any = None
        self.capability: Any = None
        self.handled: list[str] = []
        self.acted = 0

    def handler(self, type: str, does: str) -> Callable[[Any], Any]:
        def handle(obligation: Any) -> Any:
            self.handled.append(type)
            if does == "fail":
                raise RuntimeError("no")
            if does == "change":
                return lambda result: "changed:" + result
            return (lambda result: 1 / 0) if does == "breaks" else None

        async def handle_async(obligation: Any) -> Any:
            return handle(obligation)

        return handle_async if self.use_async else handle

    def connect(self, o: dict[str, Any]) -> None:
        options: dict[str, Any] = {"handlers": {t: self.handler(t, does) for t, does in o.get("handlers", {}).items()}}
        if "timeout" in o:
            options["timeout"] = o["timeout"] / 1000
        if "retries" in o:
            options["retries"] = o["retries"]
        if "breaker" in o:
            options["breaker"] = Breaker(o["breaker"]["failures"], o["breaker"]["coolDown"] / 1000)
        if "obligations" in o:
            options["obligations"] = o["obligations"]
        self.client = (AsyncClient if self.use_async else Client)(o["url"], o.get("credential"), **options)
        self.holder = self.capability = None

    def act(self, permit: Any) -> Any:
        self.acted += 1

        async def later() -> str:
            return "done"

        return later() if self.use_async else "done"

    async def case(self, line: dict[str, Any]) -> dict[str, Any]:
        self.handled, self.acted = [], 0
        out: dict[str, Any] = {
            "allowed": False,
            "kind": "",
            "status": 0,
            "reason": "",
            "reasonUser": "",
            "acted": 0,
            "result": "",
            "handled": [],
            "items": [],
            "found": [],
            "spent": False,
            "named": False,
            "waits": False,
        }
        try:
            if "client" in line:
                self.connect(line["client"])
            await self.do(line, out)
        except AuthorizationError as error:
            self.no(out, error)
        out["handled"], out["acted"] = self.handled, self.acted
        return out

    async def do(self, line: dict[str, Any], out: dict[str, Any]) -> None:
        c, do, question = self.client, line["do"], line.get("question")
        if "tenant" in line:
            c = c.for_tenant(line["tenant"])
        options: dict[str, Any] = {"capability": self.capability} if line.get("useCapability") else {}
        waits = {"wait": line["wait"]} if "wait" in line else {}
        if do == "evaluate":
            answer = await self.got(c.evaluate(question, **options))
            out["allowed"] = answer.permitted
            if answer.error:
                self.no(out, answer.error)
            else:
                out["named"] = bool(answer.decision_id)
        elif do == "authorize":
            permit = await self.got(c.authorize(question, **options, **waits))
            out["allowed"], out["named"] = True, bool(permit.decision_id)
        elif do == "enforce":
            named: list[bool] = []

            def act(permit: Any) -> Any:
                named.append(bool(permit.decision_id))
                return self.act(permit)

            out["result"] = await self.got(c.enforce(question, act, **options, **waits))
            out["allowed"], out["named"] = True, named[0]
        elif do == "enforceAll":
            out["result"] = await self.got(c.enforce_all(line.get("questions", []), self.act))
            out["allowed"] = True
        elif do == "batch":
            semantic = {"semantic": line["semantic"]} if "semantic" in line else {}
            answers = await self.got(c.evaluate_batch(line.get("questions", []), **semantic))
            out["items"] = [
                {"allowed": a.permitted, "kind": a.error.kind if a.error else "", "reason": a.reason or ""}
                for a in answers
            ]
            out["allowed"] = all(a.permitted for a in answers)
        elif do == "search":
            found = getattr(c, FINDS[line["what"]])(question)
            if self.use_async:
                async for item in found:
                    out["found"].append(item.get("id", item.get("name")))
            else:
                for item in found:
                    out["found"].append(item.get("id", item.get("name")))
            out["allowed"] = True
        elif do == "capability":
            from policy_service.capability import Holder

            self.holder = Holder.generate()
            self.capability = await self.got(c.request_capability(self.holder, line["ask"], **waits))
            out["allowed"] = True
        elif do == "renew":
            self.capability = await self.got(c.renew_capability(self.capability, **waits))
            out["allowed"] = True
        else:
            raise ValueError(do)

    async def got(self, value: Any) -> Any:
        return await value if self.use_async else value

    def no(self, out: dict[str, Any], error: AuthorizationError) -> None:
        out["kind"], out["status"] = error.kind, error.pdp_status or 0
        out["reason"], out["reasonUser"] = error.reason or "", error.reason_user or ""
        out["spent"], out["named"], out["waits"] = error.spent, bool(error.decision_id), error.task is not None


async def main() -> None:
    driver = Driver("--async" in sys.argv[1:])
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            out = await driver.case(json.loads(line))
        except Exception as error:
            out = {"crash": f"{type(error).__name__}: {error}"}
        print(json.dumps(out), flush=True)
    if driver.client and driver.use_async:
        await driver.client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
