"""The answer held to be the object True."""

# comes of it: refused
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question) is True else "refused"
