# SPDX-License-Identifier: Apache-2.0
"""The checks that scripts/lint runs; each is a program: python3 -m linting.links and so on."""
