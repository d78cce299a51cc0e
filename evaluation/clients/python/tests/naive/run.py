"""Runs each careless program beside a PDP that denies its question, and says which of them take that for another thing."""

import asyncio
import importlib
import inspect
import os
import pathlib
import re
import sys
import warnings

from policy_service import AsyncClient, Client, Question

# mallory may not use the tool.
QUESTION: Question = {
    "subject": {"type": "user", "id": "mallory"},
    "action": {"name": "tool.invoke"},
    "resource": {"type": "tool", "id": "ledger:export_payments"},
}


async def comes_async(careless: object) -> str:
    async with AsyncClient(os.environ["PDP_URL"], os.environ["PDP_KEY"]) as client:
        return await careless(client, QUESTION)  # type: ignore[operator,no-any-return]


def comes(name: str) -> str:
    careless = importlib.import_module(name).careless
    try:
        if inspect.iscoroutinefunction(careless):
            return asyncio.run(comes_async(careless))
        return str(careless(Client(os.environ["PDP_URL"], os.environ["PDP_KEY"]), QUESTION))
    except Exception as error:
        return type(error).__name__


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    programs = [p for p in sorted(pathlib.Path(__file__).parent.glob("*.py")) if p.name != "run.py"]
    others = []
    for program in programs:
        wanted = re.search(r"^# comes of it: (\w+)$", program.read_text(), re.M)
        got = comes(program.stem)
        if wanted is None or got != wanted[1]:
            others.append(f"{program.name}: {got}")
    if others or not programs:
        sys.exit("\n".join(others))
