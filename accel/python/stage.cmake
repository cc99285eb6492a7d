# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=FOLDER -DTO=FOLDER -P stage.cmake: makes TO/paceline the same as FROM/paceline, so
# that no file that was removed or moved stays behind.
file(REMOVE_RECURSE ${TO}/paceline)
file(COPY ${FROM}/paceline DESTINATION ${TO} FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
file(COPY ${FROM}/site/sitecustomize.py DESTINATION ${TO}/site)
