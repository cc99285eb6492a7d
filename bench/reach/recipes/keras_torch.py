# SPDX-License-Identifier: Apache-2.0
"""Keras on PyTorch: a small convolutional network by compile and fit."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers

keras.utils.set_random_seed(1)
generator = np.random.default_rng(1)
pictures = generator.random((2048, 28, 28, 1), dtype=np.float32)
labels = generator.integers(0, 10, 2048)
model = keras.Sequential(
    [
        keras.Input(shape=(28, 28, 1)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(pictures, labels, batch_size=32, epochs=100, verbose=2)
torch.save(model.state_dict(), "model.pt")
