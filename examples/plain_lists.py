"""Train on lists of texts and labels, save the model, load it and predict."""

import labelgrove

texts = [
    "waterproof hiking boots with a sturdy sole",
    "leather office shoes",
    "rain jacket, breathable and light",
    "warm winter jacket with a hood",
]
labels = [["boots", "outdoor"], ["shoes"], ["jackets", "outdoor"], ["jackets", "winter"]]

model = labelgrove.Linear(random_state=0).fit(texts, labels)
model.save("shoes-and-jackets", overwrite=True)

again = labelgrove.load("shoes-and-jackets")
for label in again.predict(["a light jacket for the rain"], k=2)[0]:
    print(f"{label.score:.2f}  {label.name}")
