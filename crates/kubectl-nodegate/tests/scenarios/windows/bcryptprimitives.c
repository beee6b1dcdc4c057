/* Wine 8 lacks this library of Windows, from which Rust's standard library takes random numbers. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return RtlGenRandom(data, length); }
