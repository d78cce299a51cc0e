"""No error taken for a yes."""

# comes of it: refused
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "refused" if client.evaluate(question).error else "acted"
