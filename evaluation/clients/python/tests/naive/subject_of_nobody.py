"""A subject whose id is missing."""

# comes of it: Undecided
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return client.enforce({**question, "subject": {"type": "user", "id": None}}, lambda permit: "acted")  # refused: mypy arg-type, mypy call-overload, mypy no-any-return, pyright reportArgumentType, pyright reportCallIssue
