"""The dependency of FastAPI as a decorator."""

# comes of it: TypeError
from fastapi import FastAPI
from fastapi.testclient import TestClient

from policy_service import Client, Question
from policy_service.fastapi import protect


def careless(client: Client, question: Question) -> str:
    app = FastAPI()

    @app.get("/")
    @protect(client, lambda request: question)
    def route() -> str:
        return "acted"

    return TestClient(app).get("/").text
