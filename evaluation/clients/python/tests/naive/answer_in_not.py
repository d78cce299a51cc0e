"""An early return on a no."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    if not client.evaluate(question):  # refused: pyright reportGeneralTypeIssues
        return "refused"
    return "acted"
