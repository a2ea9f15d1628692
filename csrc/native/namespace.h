// Where the native library registers its ops: `lltm` when it is the installed one, another name
// when lltm.jit.load() builds it beside an installed one.
#pragma once

#if !defined(LLTM_NAMESPACE)
#define LLTM_NAMESPACE lltm
#endif
#define LLTM_STRING_OF(name) #name
#define LLTM_STRING(name) LLTM_STRING_OF(name)
#define LLTM_NAMESPACE_STRING LLTM_STRING(LLTM_NAMESPACE)
// torch 2.9 takes the name of its macro's argument literally; these expand it first.
#define LLTM_LIBRARY(name, m) TORCH_LIBRARY(name, m)
#define LLTM_LIBRARY_IMPL(name, key, m) TORCH_LIBRARY_IMPL(name, key, m)
