// C++17 for models that Tunesmith compiled: exceptions and destructors around tunesmith.h, which describes the rest.
//
//     tunesmith::model model("./libmodel.so");
//     tunesmith::session session(model);
//     tunesmith::buffer<float> image(3 * 224 * 224), scores(1000);
//     session.run({image}, {scores});
//
// A library with entry points for several sizes:
//
//     tunesmith::session session(model, {TUNESMITH_ALL_ENTRIES});
//     std::vector<tunesmith::shape> shapes = {{6, 3, 224, 224}}, made = session.shapes(shapes);
//     session.run({images}, shapes, {scores});
//
// A library in which the run decides the sizes of outputs; buffers have room for the largest:
//
//     std::vector<tunesmith::shape> made = session.run_open({image}, {boxes});
#ifndef TUNESMITH_HPP
#define TUNESMITH_HPP

#include <cstddef>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tunesmith.h"

namespace tunesmith {

// What failed; status is one of the results in tunesmith.h, or -1 for a library that cannot be loaded.
class error : public std::runtime_error {
 public:
  error(int status, const char *text) : std::runtime_error(text ? text : "unknown error"), status(status) {}
  const int status;
};

// Memory as kernels use it in place. Other memory is copied.
template <class T>
struct allocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};
  allocator() = default;
  template <class U>
  allocator(const allocator<U> &) noexcept {}
  T *allocate(std::size_t count) { return static_cast<T *>(::operator new(count * sizeof(T), alignment)); }
  void deallocate(T *memory, std::size_t) noexcept { ::operator delete(memory, alignment); }
  friend bool operator==(const allocator &, const allocator &) noexcept { return true; }
  friend bool operator!=(const allocator &, const allocator &) noexcept { return false; }
};

template <class T>
using buffer = std::vector<T, allocator<T>>;

// A loaded library, which stays loaded until the process ends.
class model {
 public:
#ifndef TUNESMITH_NO_DLOPEN
  explicit model(const std::string &path) {
    const char *text = nullptr;
    api_ = tunesmith_open(path.c_str(), &text);
    if (!api_) throw error(-1, text);
  }
#endif
  // Of a library that the program is linked with: model(tunesmith_get_api).
  explicit model(const tunesmith_api *(*get_api)(std::uint32_t, const char **)) {
    const char *text = nullptr;
    api_ = get_api(TUNESMITH_API_VERSION, &text);
    if (!api_) throw error(-1, text);
  }
  const tunesmith_description &description() const { return *api_->description; }
  const tunesmith_api &api() const { return *api_; }

 private:
  const tunesmith_api *api_;
};

// An input: a container, or an address and bytes.
struct input : tunesmith_input {
  input(const void *data, std::size_t bytes) : tunesmith_input{data, bytes} {}
  template <class C, class = decltype(std::declval<const C &>().data())>
  input(const C &values) : tunesmith_input{values.data(), values.size() * sizeof(*values.data())} {}
};

// An output likewise; nullptr is one that is not wanted.
struct output : tunesmith_output {
  output(std::nullptr_t) : tunesmith_output{nullptr, 0} {}
  output(void *data, std::size_t bytes) : tunesmith_output{data, bytes} {}
  template <class C, class = decltype(std::declval<C &>().data())>
  output(C &values) : tunesmith_output{values.data(), values.size() * sizeof(*values.data())} {}
};

// Sizes of the axes of an input or output.
using shape = std::vector<std::int64_t>;

class session {
 public:
  explicit session(const model &model, const tunesmith_options &options = {}) : api_(&model.api()) {
    check(api_->create(&options, &session_));
    entry_ = &api_->description->entries[options.entry < 0 ? 0 : options.entry];
  }
  session(session &&other) noexcept
      : api_(other.api_), entry_(other.entry_), session_(std::exchange(other.session_, nullptr)) {}
  session &operator=(session &&other) noexcept {
    std::swap(api_, other.api_);
    std::swap(entry_, other.entry_);
    std::swap(session_, other.session_);
    return *this;
  }
  ~session() { api_->close(session_); }

  // Names, shapes and sizes of inputs and outputs; of a session of all entry points, those of the first.
  const tunesmith_entry &entry() const { return *entry_; }
  int threads() const { return api_->threads(session_); }

  void run(std::initializer_list<input> inputs, std::initializer_list<output> outputs) {
    run(inputs.begin(), inputs.size(), outputs.begin(), outputs.size());
  }
  void run(const std::vector<input> &inputs, const std::vector<output> &outputs) {
    run(inputs.data(), inputs.size(), outputs.data(), outputs.size());
  }

  // Run, and return the shapes of the outputs.
  std::vector<shape> run_open(const std::vector<input> &inputs, const std::vector<output> &outputs) {
    std::vector<shape> made = ranks();
    check(api_->run_open(session_, inputs.data(), static_cast<std::int32_t>(inputs.size()), outputs.data(),
                         static_cast<std::int32_t>(outputs.size()), written(made).data()));
    return made;
  }

  // The shapes of the outputs for inputs of these shapes.
  std::vector<shape> shapes(const std::vector<shape> &inputs) const {
    std::vector<shape> made = ranks();
    check(api_->shapes(session_, pointers(inputs).data(), static_cast<std::int32_t>(inputs.size()),
                       written(made).data(), entry_->output_count));
    return made;
  }
  // Run on inputs of these shapes.
  void run(const std::vector<input> &inputs, const std::vector<shape> &shapes, const std::vector<output> &outputs) {
    const std::vector<const std::int64_t *> given = pointers(shapes);
    if (given.size() != inputs.size()) throw error(TUNESMITH_INVALID_ARGUMENT, "each input needs a shape");
    check(api_->run_shapes(session_, inputs.data(), given.data(), static_cast<std::int32_t>(inputs.size()),
                           outputs.data(), static_cast<std::int32_t>(outputs.size())));
  }

 private:
  // Room for the shapes of the outputs, and where it lies.
  std::vector<shape> ranks() const {
    std::vector<shape> made;
    for (std::int32_t i = 0; i < entry_->output_count; ++i) made.emplace_back(entry_->outputs[i].rank);
    return made;
  }
  static std::vector<std::int64_t *> written(std::vector<shape> &made) {
    std::vector<std::int64_t *> addresses;
    for (shape &each : made) addresses.push_back(each.data());
    return addresses;
  }
  // Checks the ranks, which C's functions take for granted.
  std::vector<const std::int64_t *> pointers(const std::vector<shape> &shapes) const {
    std::vector<const std::int64_t *> made;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (i < static_cast<std::size_t>(entry_->input_count) &&
          shapes[i].size() != static_cast<std::size_t>(entry_->inputs[i].rank))
        throw error(TUNESMITH_INVALID_ARGUMENT, "a shape has another number of axes than its input");
      made.push_back(shapes[i].data());
    }
    return made;
  }
  void run(const input *inputs, std::size_t input_count, const output *outputs, std::size_t output_count) {
    static_assert(sizeof(input) == sizeof(tunesmith_input) && sizeof(output) == sizeof(tunesmith_output),
                  "arrays of C");
    check(api_->run(session_, inputs, static_cast<std::int32_t>(input_count), outputs,
                    static_cast<std::int32_t>(output_count)));
  }
  void check(int status) const {
    if (status) throw error(status, api_->error());
  }

  const tunesmith_api *api_;
  const tunesmith_entry *entry_ = nullptr;
  tunesmith_session *session_ = nullptr;
};

}  // namespace tunesmith
#endif
