# SPDX-License-Identifier: Apache-2.0
"""What every other part of the package stands on: the environment's settings, log lines, the
library, the trace and the register of reports. Imports nothing else of paceline.
"""
