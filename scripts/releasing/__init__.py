# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/release: shell completions, the bill of materials, and checks."""
