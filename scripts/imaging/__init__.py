# SPDX-License-Identifier: Apache-2.0
"""Container images without Docker, for scripts/images."""
