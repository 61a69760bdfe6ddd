// The tables of unicode_tables.cpp: see tools/unicode_tables.py, which writes them.
#pragma once

namespace tegula::unicode {

// Symbols from '@' (0) on, each with a count of code points where it is not 1: "AB3" is 1, 2, 2, 2.
extern const char kCategoryRuns[];        // values of Category
extern const char kCombiningClassRuns[];  // indices into kCombiningClasses
extern const unsigned char kCombiningClasses[];
// A character, what it becomes, and U+00B6; again and again.
extern const char kCanonicalBothWays[];  // one step of a decomposition, which composes again
extern const char kCanonicalOneWay[];    // which does not
extern const char kCompatible[];         // the whole of it
extern const char kLowercase[];          // beyond ASCII
// Code points at which membership changes, from no; the last is 0x110000.
extern const char32_t kMarksDiffer[], kNonspacingDiffer[], kControlDiffer[], kPunctuationDiffer[],
    kNumbersDiffer[];

}  // namespace tegula::unicode
