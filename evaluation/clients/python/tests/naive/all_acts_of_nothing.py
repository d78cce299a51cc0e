"""An act that needs no permit."""

# comes of it: Undecided
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return client.enforce_all([], lambda permits: "acted")
