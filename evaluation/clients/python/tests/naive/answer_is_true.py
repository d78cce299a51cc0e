"""The answer compared with True."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question) == True else "refused"  # noqa: E712
