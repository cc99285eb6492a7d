// SPDX-License-Identifier: Apache-2.0
// A shared library opened at run time, and its functions by name. The destructor closes it. Belongs
// to one thread. On failure `problem` is not empty, and a missing function is null.
#pragma once

#include <dlfcn.h>

#include <string>

namespace paceline::agent {

class SharedLibrary {
 public:
  explicit SharedLibrary(const std::string& file)
      : handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr) return;
    const char* said = ::dlerror();
    problem_ = said == nullptr ? file + " cannot be loaded" : said;
  }
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }

  const std::string& problem() const { return problem_; }

  /// Sets `function` to the symbol. If a required symbol is missing, `problem` says so.
  template <typename Function>
  void find(const char* name, Function*& function, bool optional = false) {
    if (handle_ == nullptr) return;
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (function == nullptr && !optional && problem_.empty())
      problem_ = std::string("it has no ") + name;
  }

 private:
  void* handle_;
  std::string problem_;
};

}  // namespace paceline::agent
