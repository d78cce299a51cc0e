"""A question about the possible as the question."""

# comes of it: Undecided
from typing import Any

from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    body: Any = {**question, "unknown": ["resource"]}
    return "acted" if client.authorize(body) else "refused"  # refused: mypy truthy-bool
