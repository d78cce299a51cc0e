"""Enforce without an act, and without with."""

# comes of it: Denied
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    client.enforce(question)
    return "acted"
