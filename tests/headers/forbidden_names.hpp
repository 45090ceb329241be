// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Names that widespread headers define as macros: a library that uses them breaks where it is
// included after those.

#ifndef KINDEX_TEST_NO_FORBIDDEN_NAMES

// NOLINTBEGIN
// C and POSIX: complex.h, termios.h, ctype.h
#define I _Pragma("GCC error \"the name I\"")
#define B0 _Pragma("GCC error \"the name B0\"")
#define B1 _Pragma("GCC error \"the name B1\"")
#define _A _Pragma("GCC error \"the name _A\"")
#define _B _Pragma("GCC error \"the name _B\"")
#define _C _Pragma("GCC error \"the name _C\"")
#define _N _Pragma("GCC error \"the name _N\"")
#define _S _Pragma("GCC error \"the name _S\"")
#define _T _Pragma("GCC error \"the name _T\"")
// Windows
#undef min
#undef max
#define min(...) _Pragma("GCC error \"the name min\"")
#define max(...) _Pragma("GCC error \"the name max\"")
#define small _Pragma("GCC error \"the name small\"")
#define near _Pragma("GCC error \"the name near\"")
#define far _Pragma("GCC error \"the name far\"")
#define interface _Pragma("GCC error \"the name interface\"")
#define IN _Pragma("GCC error \"the name IN\"")
#define OUT _Pragma("GCC error \"the name OUT\"")
#define ERROR _Pragma("GCC error \"the name ERROR\"")
// sys/sysmacros.h
#undef major
#undef minor
#define major(...) _Pragma("GCC error \"the name major\"")
#define minor(...) _Pragma("GCC error \"the name minor\"")
// X11, logging libraries, test frameworks
#define Status _Pragma("GCC error \"the name Status\"")
#define Success _Pragma("GCC error \"the name Success\"")
#define None _Pragma("GCC error \"the name None\"")
#define Bool _Pragma("GCC error \"the name Bool\"")
#define LOG _Pragma("GCC error \"the name LOG\"")
#define CHECK _Pragma("GCC error \"the name CHECK\"")
#define DEBUG _Pragma("GCC error \"the name DEBUG\"")
// NOLINTEND

#endif
