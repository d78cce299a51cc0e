"""The answer compared with False."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question) != False else "refused"  # noqa: E712
