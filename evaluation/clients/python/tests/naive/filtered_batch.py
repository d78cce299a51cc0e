"""The true answers of a batch."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if list(filter(None, client.evaluate_batch([question]))) else "refused"
