// SPDX-License-Identifier: Apache-2.0
// Stands before Debian's <nlohmann/json.hpp> in builds with PACELINE_SHARED_JSON: the library's
// templates are compiled once, by instances.cpp, and not in every unit that includes them. With
// sanitizers that is most of a unit's time (26 s become 10). Adds no name and changes no meaning.
#pragma once

#include <string>

#include_next <nlohmann/json.hpp>

#ifndef PACELINE_JSON_INSTANCES
#define PACELINE_JSON_INSTANCE extern template class
#else
#define PACELINE_JSON_INSTANCE template class
#endif

PACELINE_JSON_INSTANCE nlohmann::basic_json<>;
PACELINE_JSON_INSTANCE nlohmann::detail::serializer<nlohmann::json>;
PACELINE_JSON_INSTANCE nlohmann::detail::json_sax_dom_parser<nlohmann::json>;
PACELINE_JSON_INSTANCE nlohmann::detail::json_sax_dom_callback_parser<nlohmann::json>;
PACELINE_JSON_INSTANCE
nlohmann::detail::parser<nlohmann::json,
                         nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>;
PACELINE_JSON_INSTANCE
nlohmann::detail::parser<nlohmann::json, nlohmann::detail::iterator_input_adapter<const char*>>;
PACELINE_JSON_INSTANCE
nlohmann::detail::lexer<nlohmann::json,
                        nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>;
PACELINE_JSON_INSTANCE
nlohmann::detail::lexer<nlohmann::json, nlohmann::detail::iterator_input_adapter<const char*>>;

#undef PACELINE_JSON_INSTANCE
