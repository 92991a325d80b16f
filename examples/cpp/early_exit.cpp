// A client's stages one after the other in C++, until an exit is sure enough: one graph per stage, no other dependency
// than ONNX Runtime.
//
//   early_exit THRESHOLD CHANNELSxHEIGHTxWIDTH stage-1.onnx stage-2.onnx ... < input.f32
//
// The input is normalised already, float32 as this machine has it. Prints exit (from 1), class and confidence.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <onnxruntime_cxx_api.h>

namespace {

std::vector<float> softmax(const float* logits, std::size_t classes) {
  const float most = *std::max_element(logits, logits + classes);
  std::vector<float> powers(classes);
  float total = 0;
  for (std::size_t i = 0; i < classes; ++i) total += powers[i] = std::exp(logits[i] - most);
  for (float& power : powers) power /= total;
  return powers;
}

std::vector<std::int64_t> batch_of_one(const std::string& text) {
  std::vector<std::int64_t> shape{1};
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, 'x');) shape.push_back(std::stoll(part));
  return shape;
}

// Run one stage: from the state before it to the state behind it, with its exit's logits last.
std::vector<Ort::Value> step(Ort::Session& stage, const std::vector<Ort::Value>& state) {
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<Ort::AllocatedStringPtr> kept;
  std::vector<const char*> inputs, outputs;
  for (std::size_t i = 0; i < stage.GetInputCount(); ++i) {
    kept.push_back(stage.GetInputNameAllocated(i, allocator));
    inputs.push_back(kept.back().get());
  }
  for (std::size_t i = 0; i < stage.GetOutputCount(); ++i) {
    kept.push_back(stage.GetOutputNameAllocated(i, allocator));
    outputs.push_back(kept.back().get());
  }
  return stage.Run(Ort::RunOptions{nullptr}, inputs.data(), state.data(), inputs.size(), outputs.data(), outputs.size());
}

int answer(double threshold, const std::vector<std::int64_t>& shape, char** graphs, int stages) {
  std::vector<char> bytes{std::istreambuf_iterator<char>(std::cin), {}};
  std::size_t numbers = 1;
  for (const std::int64_t size : shape) numbers *= static_cast<std::size_t>(size);
  if (bytes.size() != numbers * sizeof(float)) {
    std::cerr << "the input has " << bytes.size() << " bytes; this network takes " << numbers * sizeof(float) << "\n";
    return 2;
  }
  Ort::Env environment;
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  std::vector<Ort::Session> loaded;
  for (int i = 0; i < stages; ++i) loaded.emplace_back(environment, graphs[i], options);

  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<Ort::Value> state;
  state.push_back(Ort::Value::CreateTensor<float>(
      memory, reinterpret_cast<float*>(bytes.data()), numbers, shape.data(), shape.size()));
  for (int i = 0; i < stages; ++i) {
    state = step(loaded[static_cast<std::size_t>(i)], state);
    const Ort::Value logits = std::move(state.back());
    state.pop_back();
    const auto found = softmax(logits.GetTensorData<float>(), logits.GetTensorTypeAndShapeInfo().GetElementCount());
    const auto best = std::max_element(found.begin(), found.end());
    if (*best > threshold || i == stages - 1) {  // what lies behind is not computed
      std::printf("%d %td %.6f\n", i + 1, best - found.begin(), static_cast<double>(*best));
      break;
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::cerr << "usage: early_exit THRESHOLD CxHxW STAGE.onnx... < input.f32\n";
    return 2;
  }
  try {
    return answer(std::stod(arguments[1]), batch_of_one(arguments[2]), arguments + 3, count - 3);
  } catch (const std::exception& error) {
    std::cerr << "early_exit: " << error.what() << "\n";
    return 1;
  }
}
