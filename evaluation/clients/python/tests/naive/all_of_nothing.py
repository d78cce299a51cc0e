"""All answers to no question."""

# comes of it: Undecided
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if all(answer.permitted for answer in client.evaluate_batch([])) else "refused"
