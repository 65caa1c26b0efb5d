// The API's names for standard types. Programs written for oneCCL also rely on the headers that come with them.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "oneapi/ccl/string.hpp"

namespace ccl {

template <class T, class Allocator = std::allocator<T>>
using vector_class = std::vector<T, Allocator>;

template <class T, std::size_t size>
using array_class = std::array<T, size>;

template <class T, class Allocator = std::allocator<T>>
using list_class = std::list<T, Allocator>;

template <class Key, class T, class Compare = std::less<Key>, class Allocator = std::allocator<std::pair<const Key, T>>>
using map_class = std::map<Key, T, Compare, Allocator>;

template <class First, class Second>
using pair_class = std::pair<First, Second>;

template <class... Types>
using tuple_class = std::tuple<Types...>;

template <class Result, class... Arguments>
using function_class = std::function<Result(Arguments...)>;

template <class T>
using reference_wrapper_class = std::reference_wrapper<T>;

template <class T>
using shared_ptr_class = std::shared_ptr<T>;

template <class T>
using unique_ptr_class = std::unique_ptr<T>;

using mutex_class = std::mutex;
using string_class = ccl::string;

}  // namespace ccl
