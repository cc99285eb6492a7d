# SPDX-License-Identifier: Apache-2.0
"""Marks in the loops of frameworks other than PyTorch, without a change of the program: each module
here is called when its framework has been imported.
"""
