// GET /openapi.json: what the paths for clients and tools take and answer, as an OpenAPI 3.1 document.
//
// Schemas of bodies are tables of fields in openapi_document.cc, with the parsers' own limits. What the tables say is
// what the parsers do: openapi_document_test.cc puts every field of every body to its parser (null, its least and
// greatest values, one beyond each, values of other types), and tests/clients/openapi_test.py has schemathesis ask the
// running cluster.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::router {

struct OpenApiLimits {
  std::string served_model_name;
  int64_t choices_max = 0;  // ModelContext::choices_max
};

std::string OpenApiDocument(const OpenApiLimits& limits);

}  // namespace tandem::router
