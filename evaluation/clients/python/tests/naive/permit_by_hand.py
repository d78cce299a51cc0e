"""A permit made by hand."""

# comes of it: TypeError
from policy_service import Client, Permit, Question


def careless(client: Client, question: Question) -> str:
    permit = Permit()
    return "acted" if permit else "refused"
