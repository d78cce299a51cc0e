"""The answer in an expression."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return client.evaluate(question) and "acted" or "refused"  # refused: pyright reportReturnType
