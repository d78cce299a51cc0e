"""A batch of a caller as the question."""

# comes of it: Undecided
from typing import Any

from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    body: Any = {**question, "evaluations": [{"resource": {"type": "tool", "id": "tickets:create_ticket"}}]}
    return "acted" if client.authorize(body) else "refused"  # refused: mypy truthy-bool
