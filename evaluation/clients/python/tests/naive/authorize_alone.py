"""Authorize as a statement."""

# comes of it: Denied
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    client.authorize(question)
    return "acted"
