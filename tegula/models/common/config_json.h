// Shared by reading, printing and checking of settings.
#pragma once

#include <span>

#include "tegula/io/json.h"
#include "tegula/models/config.h"

namespace tegula {

// The default, in the type of the setting.
SettingValue value_of(const Field::Default& value, const Setting& setting);
// ", must be from 1 to 4096": what a value must be that this one is not. Empty: it fits.
std::string misfit(const Setting& setting, const SettingValue& value);
// The family's, those of every family, and of RoPE.
std::vector<std::span<const FixedKey>> fixed_keys(const ModelDef& model);

}  // namespace tegula
