# SPDX-License-Identifier: Apache-2.0
"""The ways into a program that does not know Paceline. Python's start-up (sitecustomize) and
PyTorch's entry point come here; no other part of the package does.
"""
