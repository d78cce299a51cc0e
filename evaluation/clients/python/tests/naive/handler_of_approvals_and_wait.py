"""A handler of approvals beside a wait for them."""

# comes of it: Undecided
import os

from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    asks = Client(os.environ["PDP_URL"], os.environ["PDP_KEY"], handlers={"approval_required": lambda obligation: None})
    return "acted" if asks.authorize(question, wait=1) else "refused"  # refused: mypy truthy-bool
