// wrong_file: what the bytes of a file are that was taken for another kind of file.
//
// The commonest damages of a download: a pointer of Git LFS, a web page, a server's refusal, a
// compressed copy, a file of another program, nothing at all, zeros that were never written.
#pragma once

#include <string>
#include <string_view>

namespace tegula {

// "it is a Git LFS pointer …: run git lfs pull …": what it is and what to do; "": it looks like
// none of these. `is_text`: the file should be text, so that text is no wonder.
std::string what_it_is_instead(std::string_view bytes, bool is_text);

}  // namespace tegula
