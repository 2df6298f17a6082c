r"""Serves MiniLM and a logistic regression by Sentence Transformers and FastAPI, a peer of `serve`.

    python serving_peer.py MINILM train.csv PORT

It needs sentence-transformers, fastapi, uvicorn and scikit-learn, in an environment of their own: rank4class
is not imported. The route and the JSON are those of `serve`.
"""

import csv
import importlib
import sys


def main() -> None:
    folder, path, port = sys.argv[1:]
    fastapi = importlib.import_module("fastapi")
    uvicorn = importlib.import_module("uvicorn")
    encoder = importlib.import_module("sentence_transformers").SentenceTransformer(folder, device="cpu")
    linear_model = importlib.import_module("sklearn.linear_model")
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    vectors = encoder.encode([row["text"] for row in rows], show_progress_bar=False)
    classifier = linear_model.LogisticRegression(C=10.0, max_iter=200)
    classifier.fit(vectors, [row["label"] for row in rows])
    app = fastapi.FastAPI()

    @app.post("/v1/models/mine:predict")
    def predict(body: dict) -> dict:  # in one of FastAPI's threads
        probabilities = classifier.predict_proba(
            encoder.encode(body["inputs"]["text"], show_progress_bar=False)
        )
        best = (-probabilities).argsort(axis=1)[:, :5]
        classes = classifier.classes_[best].tolist()
        return {"outputs": {"classes": classes, "probabilities": probabilities.tolist()}}

    uvicorn.run(app, port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
