// A device "cuda" for fake tensors on a machine that has none: what torch asks a device about (which one, which
// stream, how many), answered without one, and the choice of the attention kernel for an architecture.
//
// Nothing is computed here: tensors on this device have no bytes.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/native/RNN.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <vector>

namespace {

using at::SDPBackend;
using sdp::sdp_params;

int architecture = 0;  // 90 stands for sm_90
long cudnn_version = 0;  // 92000 stands for 9.20.0
constexpr int MOST_CARDS = 64;  // as many as c10 knows devices of a kind
int cards = 1;
std::atomic<int64_t> last_stream{0};
// As in CUDA, each thread has its own: the card, and of each card the stream.
thread_local c10::DeviceIndex current_card = 0;
thread_local int64_t current_stream[MOST_CARDS] = {};

// Of no number, or one that there is not: the current one. Ops on such a card are refused in Python.
c10::Device card(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::CUDA, index < 0 || index >= cards ? current_card : index);
}

c10::DeviceIndex exchange_card(c10::DeviceIndex index) {
  const c10::DeviceIndex before = current_card;
  current_card = card(index).index();
  return before;
}

c10::Stream stream_of(c10::Device on, int64_t number) {
  return c10::Stream(c10::Stream::UNSAFE, card(on.index()), number);
}

// What is asked for, in order, for whoever asks: kind, event or storage, card, stream.
enum News : int64_t { RECORD, WAIT, EVENT, STREAM, DEVICE, USED };
std::mutex listening;
std::vector<std::array<int64_t, 4>> heard;
std::atomic<int64_t> last_event{0};
ptrdiff_t place_of_pointer = 0;  // of a storage's pointer within it

void tell(News kind, const void* what, int64_t index, int64_t stream) {
  const std::lock_guard<std::mutex> lock(listening);
  heard.push_back({kind, reinterpret_cast<int64_t>(what), index, stream});
}

// Autograd runs each node of a backward pass on the stream of its forward pass, which it asks for here.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device next) const override { return card(exchange_card(next.index())); }
  c10::Device getDevice() const override { return card(current_card); }
  void setDevice(c10::Device next) const override { exchange_card(next.index()); }
  void uncheckedSetDevice(c10::Device next) const noexcept override { exchange_card(next.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(cards); }
  c10::Stream getStream(c10::Device on) const noexcept override {
    return stream_of(on, current_stream[card(on.index()).index()]);
  }
  c10::Stream getDefaultStream(c10::Device on) const override { return stream_of(on, 0); }
  c10::Stream getNewStream(c10::Device on, int) const override { return stream_of(on, ++last_stream); }
  c10::Stream getStreamFromGlobalPool(c10::Device on, bool) const override {
    return stream_of(on, ++last_stream);
  }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    int64_t& current = current_stream[card(next.device_index()).index()];
    const c10::Stream before = stream_of(next.device(), current);
    current = next.id();
    return before;
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = reinterpret_cast<void*>(++last_event);
    }
    tell(RECORD, *event, stream.device_index(), stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    tell(WAIT, event, stream.device_index(), stream.id());
  }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeEvent(void* event) const override { tell(EVENT, event, 0, 0); }
  void synchronizeStream(const c10::Stream& stream) const override {
    tell(STREAM, nullptr, stream.device_index(), stream.id());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { tell(DEVICE, nullptr, card(index).index(), 0); }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    tell(USED, reinterpret_cast<const char*>(&pointer) - place_of_pointer, stream.device_index(), stream.id());
  }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0; }
};

struct Hooks final : at::CUDAHooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(cards); }
  c10::DeviceIndex getCurrentDevice() const override { return current_card; }
  c10::DeviceIndex current_device() const override { return current_card; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex next) const override { return exchange_card(next); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex next) const override { return exchange_card(next); }
  void setCurrentDevice(c10::DeviceIndex next) const override { exchange_card(next); }
  int getNumGPUs() const override { return cards; }
  void deviceSynchronize(c10::DeviceIndex) const override {}
  // Nothing is drawn, so that any will do.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  // How a convolution lies depends on whether cuDNN takes it.
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return architecture >= 70; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return architecture >= 80; }
  bool supportsBFloat16RNNWithCuDNN() const override { return architecture >= 80; }
  long versionCuDNN() const override { return cudnn_version; }
  long versionRuntimeCuDNN() const override { return cudnn_version; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
};

// The rules of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp for dense tensors, on no AMD card; those
// that it shares with the CPU come from its header.

bool between(int lowest, int highest) {
  return architecture >= lowest && architecture <= highest;
}

bool is_half(const sdp_params& call) {
  const auto type = call.query.scalar_type();
  return type == at::kHalf || type == at::kBFloat16;
}

bool one_type(const sdp_params& call) {
  const auto type = call.query.scalar_type();
  return call.key.scalar_type() == type && call.value.scalar_type() == type;
}

bool in_half(const sdp_params& call) {
  return one_type(call) && is_half(call) && (architecture >= 80 || call.query.scalar_type() == at::kHalf);
}

bool flash_trains(const sdp_params& call) {
  if (!sdp::input_requires_grad(call) || !(between(86, 89) || between(120, 121))) {
    return true;
  }
  const int64_t head = call.query.size(-1);
  return head <= 192 || (call.dropout == 0 && head > 224);
}

bool takes_flash(const sdp_params& call) {
  if (!sdp::check_runtime_disabled_flash(call, false) || !between(80, 121)) {
    return false;
  }
  if (!sdp::check_tensor_shapes(call, false) || !sdp::check_for_attn_mask(call, false)) {
    return false;
  }
  const int64_t head = call.query.size(-1);
  const bool heads = head == call.key.size(-1) && head == call.value.size(-1) && head <= 256;
  const bool square = !call.is_causal || call.query.size(-2) == call.key.size(-2);
  return heads && square && flash_trains(call) && in_half(call) &&
      sdp::check_batch_size_and_num_heads_dense<true>(call, false) &&
      sdp::check_nonzero_sequence_lengths_dense(call, false) &&
      sdp::check_last_dim_stride_equals_1_dense<true>(call, false);
}

int64_t gemm_alignment(const sdp_params& call) {
  const int64_t least = architecture >= 80 ? 4 : 1;
  const bool tensor_cores = architecture >= 80 || (architecture >= 70 && is_half(call));
  return tensor_cores ? std::max<int64_t>(least, is_half(call) ? 8 : 4) : least;
}

// Grouped heads it takes from pytorch/pytorch#191085 on, which torch 2.13 has not.
bool takes_efficient(const sdp_params& call) {
  if (!sdp::check_runtime_disabled_mem_efficient(call, false) || !between(50, 121)) {
    return false;
  }
  if (!sdp::check_tensor_shapes(call, false) || !one_type(call)) {
    return false;
  }
  const int64_t head = call.query.size(-1), value = call.value.size(-1), alignment = gemm_alignment(call);
  const bool heads = head == call.key.size(-1) && head > 0 && value > 0 && head % alignment == 0 &&
      value % alignment == 0;
  return heads && (call.query.scalar_type() == at::kFloat || in_half(call)) &&
      sdp::check_nonzero_sequence_lengths_dense(call, false) &&
      sdp::check_last_dim_stride_equals_1_dense<false>(call, false) &&
      sdp::check_batch_size_and_num_heads_dense<false>(call, false);
}

bool fits_cudnn(const sdp_params& call) {
  constexpr int64_t most = 65535;
  const int64_t head = call.query.size(3), value = call.value.size(3);
  const bool newest = architecture == 90 || between(100, 109);
  const int64_t limit = newest && cudnn_version >= 91100 && head == 192 && value == 128 ? 192 : 128;
  return call.query.size(0) <= most && call.query.size(1) <= most && head <= limit && value <= limit &&
      head % 8 == 0 && value % 8 == 0 && call.key.size(2) != 1 &&
      (call.dropout == 0 || call.query.size(2) != 1);
}

bool takes_cudnn(const sdp_params& call) {
  const auto& context = at::globalContext();
  if (!context.userEnabledCuDNNSDP() || !between(80, 121) || cudnn_version < 90000) {
    return false;
  }
  if (context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly()) {
    return false;
  }
  const bool drops = call.dropout * 16 == std::floor(call.dropout * 16) &&
      !(call.dropout > 0 && cudnn_version > 91100 && cudnn_version < 91400);
  return drops && sdp::check_tensor_shapes(call, false) && in_half(call) &&
      sdp::check_attn_mask_shape(call, false) && sdp::check_nonzero_sequence_lengths_dense(call, false) &&
      sdp::check_last_dim_stride_equals_1_dense<true>(call, false) &&
      sdp::check_batch_size_and_num_heads_dense<true, false>(call, false) && fits_cudnn(call);
}

int64_t choose_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool is_causal,
    std::optional<double> /*scale*/,
    bool enable_gqa) {
  const sdp_params call{query, key, value, mask, dropout, is_causal, enable_gqa};
  for (const SDPBackend backend : at::globalContext().sDPPriorityOrder()) {
    const bool taken = (backend == SDPBackend::cudnn_attention && takes_cudnn(call)) ||
        (backend == SDPBackend::flash_attention && takes_flash(call)) ||
        (backend == SDPBackend::efficient_attention && takes_efficient(call)) ||
        (backend == SDPBackend::math && at::globalContext().userEnabledMathSDP());
    if (taken) {
      return static_cast<int64_t>(backend);
    }
  }
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

// Torch puts cuDNN first on these cards, unless TORCH_CUDNN_SDPA_DEPRIORITIZED is set.
void order_attention() {
  const bool newest = between(90, 99) || between(100, 109);
  const char* set = std::getenv("TORCH_CUDNN_SDPA_DEPRIORITIZED");
  if (newest && cudnn_version > 91500 && !(set != nullptr && std::string(set) == "1")) {
    std::vector<int64_t> order;
    for (const auto backend : {SDPBackend::cudnn_attention, SDPBackend::flash_attention,
                               SDPBackend::efficient_attention, SDPBackend::math}) {
      order.push_back(static_cast<int64_t>(backend));
    }
    at::globalContext().setSDPPriorityOrder(order);
  }
}

// Recurrent layers run as torch's own cells: how much room cuDNN's take for their backward pass only cuDNN knows.
struct WithoutCudnn {
  WithoutCudnn() { at::globalContext().setUserEnabledCuDNN(false); }
  ~WithoutCudnn() { at::globalContext().setUserEnabledCuDNN(true); }
};

template <typename... Rest>
void run_lstm(at::Tensor& output, at::Tensor& hidden, at::Tensor& cell, Rest... rest) {
  const WithoutCudnn off;
  std::tie(output, hidden, cell) = at::lstm(rest...);
}

template <typename... Rest>
void run_gru(at::Tensor& output, at::Tensor& hidden, Rest... rest) {
  const WithoutCudnn off;
  std::tie(output, hidden) = at::gru(rest...);
}

template <typename... Rest>
void run_tanh(at::Tensor& output, at::Tensor& hidden, Rest... rest) {
  const WithoutCudnn off;
  std::tie(output, hidden) = at::rnn_tanh(rest...);
}

template <typename... Rest>
void run_relu(at::Tensor& output, at::Tensor& hidden, Rest... rest) {
  const WithoutCudnn off;
  std::tie(output, hidden) = at::rnn_relu(rest...);
}

void install_recurrent() {
  using namespace at::native;
  lstm_cudnn_stub.set_cuda_dispatch_ptr(&run_lstm);
  lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_lstm);
  gru_cudnn_stub.set_cuda_dispatch_ptr(&run_gru);
  gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_gru);
  rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&run_tanh);
  rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_tanh);
  rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&run_relu);
  rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_relu);
}

// What starts autograd's threads for devices is reached by those who derive from it.
struct Engine : torch::autograd::Engine {
  static void start(torch::autograd::Engine& engine) { (engine.*(&Engine::start_device_threads))(); }
};

}  // namespace

extern "C" {

// Has this process believe in `count` cards of architecture `sm` (90) with this cuDNN (92000). Once only, after
// a first backward pass: autograd starts the threads of its devices with that, and knew of none.
int memplan_install(int sm, long cudnn, int count) {
  static const Guard guard;
  architecture = sm;
  cards = count;
  const auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, c10::GetCPUAllocator(), false);
  place_of_pointer = reinterpret_cast<const char*>(&storage->data_ptr()) - reinterpret_cast<const char*>(storage.get());
  cudnn_version = cudnn;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].store(&guard);
  auto& hooks = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (!hooks.isBuilt()) {
    // Torch has made its hooks while it was imported, and asks for no others: ours take their place.
    static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));
    new (&hooks) Hooks();
  }
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  order_attention();
  install_recurrent();
  Engine::start(torch::autograd::Engine::get_default_engine());
  return at::detail::getCUDAHooks().isBuilt();
}

// At most `room` of what was asked for since, four numbers each; how many there are.
int memplan_heard(int64_t* rows, int room) {
  const std::lock_guard<std::mutex> lock(listening);
  const int count = std::min<int>(room, static_cast<int>(heard.size()));
  std::copy_n(heard.begin(), count, reinterpret_cast<std::array<int64_t, 4>*>(rows));
  heard.erase(heard.begin(), heard.begin() + count);
  return count;
}

void memplan_synchronize(int index) {
  tell(DEVICE, nullptr, index, 0);
}

int memplan_card() {
  return current_card;
}

// The card that was the current one; one that is not there changes nothing.
int memplan_exchange_card(int index) {
  return exchange_card(static_cast<c10::DeviceIndex>(index));
}

int64_t memplan_stream(int index) {
  return current_stream[index];
}

void memplan_set_stream(int index, int64_t number) {
  current_stream[index] = number;
}
}
