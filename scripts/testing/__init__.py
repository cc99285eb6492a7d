# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/test: suites, what they need prepared, processes and results."""
